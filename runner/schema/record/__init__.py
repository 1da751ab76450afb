"""The records' schemas: every fact that the lab writes down, and its path in the store.

The lab adds records and never edits one. Everything that it shows (comments, checks, pages) is
derived from them. Paths below `records/`:

    preregistrations/<repository>/<issue>/<n>.json    1 is the seal, the rest later edits
    plans/<repository>/<pull>/<n>.json                one for each head that was planned
    approvals/<repository>/<pull>/<command>.json      the decision about a `/run`, or the policy's
    answers/<repository>/<thread>/<command>.json      the decision about another command
    executions/<execution>/<event>.json               execution, t1.claimed, …, result
    aliases/<experiment>/<alias>/<n>.json             what an alias means; the last one counts
    runs/<execution>.<arm>.s<seed>.json               one curve and its final figures
    replays/<execution>/<n>.json                      a part of a run was trained again
    wandb/<execution>.<arm>.s<seed>.json              the run was sent to W&B
    tracked/<execution>.json                          where W&B shows the execution
    searches/<search>/terms.json, <n>.json, end.json  what `regatta search` searched, each trial
    hub/<execution>.<step>.json                       an exported model was sent to the Hub
"""

from runner.schema.metrics import Score as Score
from runner.schema.record.approvals import POLICY as POLICY
from runner.schema.record.approvals import Answered as Answered
from runner.schema.record.approvals import Approval as Approval
from runner.schema.record.approvals import Narrowing as Narrowing
from runner.schema.record.approvals import command_of as command_of
from runner.schema.record.approvals import policy_at as policy_at
from runner.schema.record.executions import FINAL_STATES as FINAL_STATES
from runner.schema.record.executions import MOST_ATTEMPTS as MOST_ATTEMPTS
from runner.schema.record.executions import Cancelled as Cancelled
from runner.schema.record.executions import Claimed as Claimed
from runner.schema.record.executions import Ended as Ended
from runner.schema.record.executions import Evaluated as Evaluated
from runner.schema.record.executions import Examined as Examined
from runner.schema.record.executions import Execution as Execution
from runner.schema.record.executions import Lab as Lab
from runner.schema.record.executions import Origin as Origin
from runner.schema.record.executions import Started as Started
from runner.schema.record.executions import State as State
from runner.schema.record.executions import StepEnd as StepEnd
from runner.schema.record.executions import Voided as Voided
from runner.schema.record.executions import execution_id as execution_id
from runner.schema.record.fields import Isolated as Isolated
from runner.schema.record.fields import R as R
from runner.schema.record.files import BadRecord as BadRecord
from runner.schema.record.files import names as names
from runner.schema.record.files import numbered as numbered
from runner.schema.record.files import parse as parse
from runner.schema.record.files import read as read
from runner.schema.record.files import require as require
from runner.schema.record.files import write as write
from runner.schema.record.plans import ARM_NAME as ARM_NAME
from runner.schema.record.plans import ARM_OF_STEPS as ARM_OF_STEPS
from runner.schema.record.plans import EVERYTHING as EVERYTHING
from runner.schema.record.plans import Author as Author
from runner.schema.record.plans import Cost as Cost
from runner.schema.record.plans import Plan as Plan
from runner.schema.record.plans import PlannedArm as PlannedArm
from runner.schema.record.plans import PlannedData as PlannedData
from runner.schema.record.plans import PlannedRung as PlannedRung
from runner.schema.record.plans import PlannedStep as PlannedStep
from runner.schema.record.plans import Resources as Resources
from runner.schema.record.plans import Speedrun as Speedrun
from runner.schema.record.plans import arm_named as arm_named
from runner.schema.record.plans import run_name as run_name
from runner.schema.record.plans import run_of as run_of
from runner.schema.record.pull_requests import Climbed as Climbed
from runner.schema.record.pull_requests import Foretold as Foretold
from runner.schema.record.pull_requests import PlanRecord as PlanRecord
from runner.schema.record.pull_requests import Source as Source
from runner.schema.record.pull_requests import Spread as Spread
from runner.schema.record.pull_requests import Standing as Standing
from runner.schema.record.questions import Agent as Agent
from runner.schema.record.questions import Edit as Edit
from runner.schema.record.questions import Person as Person
from runner.schema.record.questions import Prediction as Prediction
from runner.schema.record.questions import Preregistration as Preregistration
from runner.schema.record.results import Ending as Ending
from runner.schema.record.results import EnteredRun as EnteredRun
from runner.schema.record.results import Lost as Lost
from runner.schema.record.results import Replayed as Replayed
from runner.schema.record.results import Result as Result
from runner.schema.record.results import Run as Run
from runner.schema.record.results import Shipped as Shipped
from runner.schema.record.results import Tracked as Tracked
from runner.schema.record.results import Upload as Upload
from runner.schema.record.results import Used as Used
from runner.schema.record.results import Validated as Validated
from runner.schema.record.results import Verdict as Verdict
from runner.schema.record.searches import Compared as Compared
from runner.schema.record.searches import SearchEnd as SearchEnd
from runner.schema.record.searches import SearchTerms as SearchTerms
from runner.schema.record.searches import SearchTrial as SearchTrial
from runner.schema.record.searches import WeighedTrial as WeighedTrial
from runner.schema.record.searches import executions_of as executions_of
from runner.schema.record.studies import AblatedPart as AblatedPart
from runner.schema.record.studies import IsoflopArm as IsoflopArm
from runner.schema.record.studies import PlannedAblation as PlannedAblation
from runner.schema.record.studies import PlannedIsoflop as PlannedIsoflop
from runner.schema.record.studies import Trial as Trial
from runner.schema.record.studies import Tuned as Tuned

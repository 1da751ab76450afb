"""Common parts of the server and the Actions job."""

import logging
from typing import Any

from bot.controller import catch_up
from bot.controller.lab_files import LabFiles
from bot.controller.reconciler import Reconciler
from bot.github import GitHub
from bot.setup.settings import Settings
from runner.execution.ray_jobs import RayAddress, RayAway, RayJobs
from runner.history import kept_records
from runner.scheduler import cluster
from runner.schema import lab_config
from runner.store.store import Store

log = logging.getLogger("regatta.deployment")


def opened(settings: Settings) -> tuple[Store, GitHub]:
    """The store and the repository, checked to belong together. Raises Unset, StoreError, Later,
    Refused, AnotherRepository."""
    credentials = settings.credentials()
    login = settings.login(credentials)
    store = Store(settings.store, jobs=settings.jobs)
    github = GitHub(
        settings.repository,
        credentials,
        api=settings.github_api,
        bot=login,
        seconds_between_writes=settings.seconds_between_writes,
    )
    catch_up.belongs(store, github)
    return store, github


def reconciler(settings: Settings, store: Store, github: GitHub, **more: Any) -> Reconciler:
    """The loop over them. Raises Unset, RayError, BadCluster. A Ray that does not answer is logged
    only, because seals, plans and answers do not need it."""
    found = LabFiles(github).now().config if settings.cluster else None
    devices = (found or lab_config.defaults()).devices
    jobs = RayJobs(RayAddress(settings.ray_address, settings.file_of_ray_token()), store.id)
    try:
        jobs.check()
    except RayAway as error:
        log.warning("%s Until it answers, approved experiments wait.", error)
    return Reconciler(
        store,
        github,
        jobs,
        cluster=cluster.load(settings.cluster, devices) if settings.cluster else None,
        isolation=settings.isolated(),
        sweep_every=catch_up.EVERY,
        records_branch=settings.records_branch,
        entries=kept_records.entries(),
        **more,
    )

import sys
sys.path.insert(0,'.')
import os
from tests import conftest
from tests.system.scenarios.test_climate import tell
base=tell()
for s in map(int, sys.argv[2:]):
    try: got=tell(sys.argv[1],s)
    except BaseException as e:
        import traceback; traceback.print_exc(limit=-6); print("SEED",s,"ERR",repr(e)[:300]); continue
    if got==base: print("SEED",s,"same"); continue
    print("SEED",s,"differs")
    for n in base["threads"]:
        for k in base["threads"][n]:
            a,b=base["threads"][n][k],got["threads"][n][k]
            if a!=b:
                print(" thread",n,k); 
                for x in a:
                    if x not in b: print("   -",str(x)[:600])
                for x in b:
                    if x not in a: print("   +",str(x)[:600])
    for k in ("checks","facts"):
        for x in base[k]:
            if x not in got[k]: print("  -",k,str(x)[:1500])
        for x in got[k]:
            if x not in base[k]: print("  +",k,str(x)[:1500])

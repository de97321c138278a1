#!/usr/bin/env python3
"""queries.py PROMETHEUS RUN FOLDER: each query of each dashboard, as Grafana sends it, to a Prometheus in a cluster.
Prints the panel, the number of series for each rate of the run, and what is wrong."""
import glob, json, os, re, sys, time, urllib.parse, urllib.request

url, run, folder = sys.argv[1:4]
now = time.time()

def get(path, **q):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(q)}") as r:
        return json.load(r)["data"]

def labels(name):
    found = get("query", query=f'count by ({name}) (last_over_time(watchlab_phase{{run="{run}"}}[15m]))')["result"]
    return sorted(r["metric"].get(name, "") for r in found)

fixed = {"job": ".+", "instance": ".+", "run": run, "variant": ".+", "__range": "15m", "__rate_interval": "30s", "__interval": "5s", "old": "none"}
for name in ("family", "pipeline", "storm"):
    fixed[name] = labels(name)[0]
fixed["baseline"] = get("query", query=f'max by (variant) (last_over_time(watchlab_baseline{{run="{run}"}}[15m]) == 1)')["result"][0]["metric"]["variant"]
fixed["new"] = get("query", query=f'max by (commit) (last_over_time(watchlab_build_info{{run="{run}"}}[15m]))')["result"][0]["metric"]["commit"]
fixed["boundary"] = "released-enqueued"
rates = labels("rate")
print("run", {k: v for k, v in fixed.items() if not k.startswith("_")}, "rates", rates)
wrong = 0
for file in sorted(glob.glob(os.path.join(folder, "*.json"))):
    board = json.load(open(file))
    print("\n" + board["title"])
    for p in board["panels"]:
        for t in p.get("targets", []):
            said = []
            for rate in rates:
                values = dict(fixed, rate=rate)
                expr = re.sub(r"\$\{?(\w+)\}?", lambda m: values.get(m[1], m[0]), t["expr"])
                try:
                    if t.get("instant"):
                        found = get("query", query=expr, time=now)["result"]
                    else:
                        found = get("query_range", query=expr, start=now - 600, end=now, step=5)["result"]
                    samples = [s[1] for r in found for s in r.get("values", [r["value"]] if "value" in r else [])]
                    bad = sum(s in ("NaN", "+Inf", "-Inf") for s in samples)
                    said.append(f"@{rate} {len(found)}" + (f" ({bad} not finite)" if bad else ""))
                    wrong += bad > 0
                except Exception as e:
                    said.append(f"@{rate} {e}")
                    wrong += 1
            print(f"  {p['title']:<42} {t['refId']}  {'  '.join(said)}")
print("\nqueries that failed or were not finite:", wrong)

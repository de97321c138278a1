# A view of the configmaps of namespace default, for watchlab client: apt install python3-kubernetes
import sys
import threading
import time
from kubernetes import client, config, watch

config.load_kube_config()
api, view = client.CoreV1Api(), {}

def follow():
    global view
    while True:
        try:
            found = api.list_namespaced_config_map('default')
            view = {o.metadata.name: o.metadata.resource_version for o in found.items}
            for e in watch.Watch().stream(api.list_namespaced_config_map, 'default', resource_version=found.metadata.resource_version):
                if e['type'] == 'DELETED':
                    view.pop(e['object'].metadata.name, None)
                else:
                    view[e['object'].metadata.name] = e['object'].metadata.resource_version
        except Exception as error:
            print(error, file=sys.stderr)
            time.sleep(1)

threading.Thread(target=follow, daemon=True).start()
for _ in sys.stdin:
    print(*(f'{name} {version}' for name, version in list(view.items())), 'end', sep='\n', flush=True)

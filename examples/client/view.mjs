// A view of the configmaps of namespace default, for watchlab client: npm install @kubernetes/client-node
import * as k8s from '@kubernetes/client-node';
import * as readline from 'node:readline';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(k8s.CoreV1Api);
const informer = k8s.makeInformer(config, '/api/v1/namespaces/default/configmaps',
  () => api.listNamespacedConfigMap({ namespace: 'default' }));
informer.on('error', (error) => { // As the informer's documentation asks for.
  console.error(error);
  setTimeout(() => informer.start(), 5000);
});
informer.start();
readline.createInterface({ input: process.stdin }).on('line', () => {
  for (const { metadata } of informer.list('default') ?? []) {
    console.log(metadata.name, metadata.resourceVersion);
  }
  console.log('end');
}).on('close', () => process.exit());

package fidelity

import "fmt"

// aPod is a pod that says all that kube-apiserver would say for it, so that what
// differs is not the defaults, which the simulated server doesn't have. Without a
// node, a gate keeps it from being scheduled.
func aPod(name, node string) string {
	where := "schedulingGates: [{name: watchlab.dev/not-to-be-run}]"
	if node != "" {
		where = "nodeName: " + node
	}
	return fmt.Sprintf(`
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  %s
  automountServiceAccountToken: false
  containers:
  - name: main
    image: example.com/app:1
    imagePullPolicy: IfNotPresent
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  preemptionPolicy: PreemptLowerPriority
  priority: 0
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  serviceAccount: default
  serviceAccountName: default
  terminationGracePeriodSeconds: 30
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
`, name, where)
}

// aDeployment says all, too.
func aDeployment(name string) string {
	return fmt.Sprintf(`
metadata: {name: %s}
spec:
  progressDeadlineSeconds: 600
  replicas: 2
  revisionHistoryLimit: 10
  selector: {matchLabels: {app: %[1]s}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%%, maxUnavailable: 25%%}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers:
      - name: main
        image: example.com/app:1
        imagePullPolicy: IfNotPresent
        resources: {}
        terminationMessagePath: /dev/termination-log
        terminationMessagePolicy: File
      dnsPolicy: ClusterFirst
      restartPolicy: Always
      schedulerName: default-scheduler
      securityContext: {}
      terminationGracePeriodSeconds: 30
`, name)
}

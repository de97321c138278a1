package fidelity

import (
	"fmt"
	"slices"
)

// aPod returns a pod with every default of kube-apiserver spelled out, because the simulated server
// has no defaults of built-in kinds. A pod without a node has a scheduling gate.
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

// aDeployment returns a deployment with every default spelled out.
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

// widgetDefinition defines the custom resource of the questions.
const widgetDefinition = `
metadata:
  name: widgets.fidelity.watchlab.dev
spec:
  group: fidelity.watchlab.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    selectableFields:
    - jsonPath: .spec.size
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: string, enum: [small, large]}
              replicas: {type: integer, format: int32, minimum: 0, default: 1}
              color: {type: string, maxLength: 8, pattern: "^[a-z]+$"}
              port: {x-kubernetes-int-or-string: true}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    weight: {type: integer, default: 5}
          status:
            type: object
            properties:
              replicas: {type: integer}
              selector: {type: string}
              phase: {type: string}
  - name: v1beta1
    served: true
    storage: false
    subresources:
      status: {}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// Questions returns all questions, by area.
func Questions() []Question {
	return slices.Concat(
		area("List", lists),
		area("Watch", watches),
		area("Create", creates),
		area("Update", updates),
		area("Patch", patches),
		area("Server-side apply", applies),
		area("Delete", deletes),
		area("Subresources", subresources),
		area("Custom resources", customs),
		area("Field validation", validations),
		area("Tables and metadata", tables),
		area("Encodings", encodings),
		area("Errors", failures),
		area("Discovery", discoveries),
		area("Cluster behaviour", beside),
	)
}

func area(name string, questions []Question) []Question {
	for i := range questions {
		questions[i].Area = name
	}
	return questions
}

package fidelity

// Widgets are the custom resources that questions are about.
var Widgets = widgets.GroupVersionResource

// widgetDefinition is of the custom resources that questions are about.
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

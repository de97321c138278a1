package dashboards

import (
	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// byVariant are the labels that tell one variant from another: the same
// implementation has different deliveries.
var byVariant = []string{metric.Family, metric.Variant, metric.Delivery}

// Pickers of a run's labels. Each offers what the pickers before it leave.

func pickRun() grafana.Variable {
	return grafana.Variable{Name: "run", Label: "run", Description: "A run of the command: its id", Query: labelValues(process().of(metric.Phase), "run"), Multi: true, AllValue: ".+", Descending: true}
}

func pickPipeline() grafana.Variable {
	return grafana.Variable{Name: "pipeline", Label: "pipeline", Description: "queue: one family alone; informer: client-go's controller; kubelet: sources, merge and sync loop", Query: labelValues(ours().of(metric.Events), "pipeline"), Multi: true, AllValue: ".+"}
}

func pickStorm() grafana.Variable {
	return grafana.Variable{Name: "storm", Label: "storm", Description: "The storm that is played", Query: labelValues(ours().of(metric.Events), "storm"), Multi: true, AllValue: ".+"}
}

func pickFamily() grafana.Variable {
	return grafana.Variable{Name: "family", Label: "family", Description: "The stage that is swapped: deltafifo, queue or merge", Query: labelValues(ours().of(metric.Events), "family"), Multi: true, AllValue: ".+"}
}

func pickVariant() grafana.Variable {
	return grafana.Variable{Name: "variant", Label: "variant", Description: "The implementation of the family", Query: labelValues(ours().among("family", "family").of(metric.Events), "variant"), Multi: true, AllValue: ".+"}
}

// played selects by all that pickers offer on most dashboards.
func played() selector {
	return ours().among("pipeline", "pipeline").among("storm", "storm").among("family", "family").among("variant", "variant")
}

func playedPickers() []grafana.Variable {
	return []grafana.Variable{pickRun(), pickPipeline(), pickStorm(), pickFamily(), pickVariant()}
}

// marks are the annotations of all dashboards.
func marks(scope selector) []grafana.Annotation {
	return []grafana.Annotation{
		{
			Name: "Measuring", Color: "rgba(115, 191, 105, 0.35)", Step: "5s", Off: true,
			Expr:  maximum(scope.equal("phase", "measure").of(metric.Phase), metric.Family, metric.Variant, metric.Delivery, metric.Storm, metric.Pipeline),
			Title: "measuring {{family}}/{{variant}} {{delivery}}", Text: "{{pipeline}} pipeline, storm {{storm}}",
		},
		{
			Name: "Faults", Color: "orange", Step: "15s",
			Expr:  "ceil(" + sum("increase("+scope.of(metric.Faults)+"[1m])", "fault") + ")",
			Title: "injected: {{fault}}", Text: "the fault was injected in the minute before",
		},
		{
			Name: "Invalid", Color: "red", Step: "15s",
			Expr:  maximum(scope.equal("status", "invalid").of(metric.Verdict), metric.Family, metric.Variant, metric.Delivery, metric.Cause),
			Title: "invalid: {{family}}/{{variant}} {{delivery}}", Text: "{{cause}}",
		},
	}
}

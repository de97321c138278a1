package dashboards

import (
	"watchlab/bench/telemetry/metric"
)

// byVariant has the labels that identify a variant. One implementation can have several
// deliveries.
var byVariant = []string{metric.Family, metric.Variant, metric.Delivery}

// Pickers of a run's labels. Each offers the values that the previous pickers leave.

func pickRun() variable {
	return variable{Name: "run", Label: "run", Description: "The name of a run", Query: labelValues(process().of(metric.Phase), "run"), Multi: true, AllValue: ".+", Descending: true}
}

func pickPipeline() variable {
	return variable{Name: "pipeline", Label: "pipeline", Description: "queue: the queue alone; informer: client-go's controller; kubelet: sources, merge and sync loop", Query: labelValues(ours().of(metric.Events), "pipeline"), Multi: true, AllValue: ".+"}
}

func pickStorm() variable {
	return variable{Name: "storm", Label: "storm", Description: "The storm", Query: labelValues(ours().of(metric.Events), "storm"), Multi: true, AllValue: ".+"}
}

func pickFamily() variable {
	return variable{Name: "family", Label: "family", Description: "The swappable stage: deltafifo, queue or merge", Query: labelValues(ours().of(metric.Events), "family"), Multi: true, AllValue: ".+"}
}

func pickVariant() variable {
	return variable{Name: "variant", Label: "variant", Description: "The implementation of the family", Query: labelValues(ours().among("family", "family").of(metric.Events), "variant"), Multi: true, AllValue: ".+"}
}

// played selects by the pickers of most dashboards.
func played() selector {
	return ours().among("pipeline", "pipeline").among("storm", "storm").among("family", "family").among("variant", "variant")
}

func playedPickers() []variable {
	return []variable{pickRun(), pickPipeline(), pickStorm(), pickFamily(), pickVariant()}
}

// annotations of all dashboards.
func annotations(scope selector) []annotation {
	return []annotation{
		{
			Name: "Measuring", Color: "rgba(115, 191, 105, 0.35)", Step: "5s", Off: true,
			Expr:  maximum(scope.equal("phase", "measure").of(metric.Phase), metric.Family, metric.Variant, metric.Delivery, metric.Storm, metric.Pipeline),
			Title: "measuring {{family}}/{{variant}} {{delivery}}", Text: "{{pipeline}} pipeline, storm {{storm}}",
		},
		{
			Name: "Faults", Color: "orange", Step: "15s",
			Expr:  "ceil(" + sum("increase("+scope.of(metric.Faults)+"[1m])", "fault") + ")",
			Title: "injected: {{fault}}", Text: "injected in the previous minute",
		},
		{
			Name: "Invalid", Color: "red", Step: "15s",
			Expr:  maximum(scope.equal("status", "invalid").of(metric.Verdict), metric.Family, metric.Variant, metric.Delivery, metric.Cause),
			Title: "invalid: {{family}}/{{variant}} {{delivery}}", Text: "{{cause}}",
		},
	}
}

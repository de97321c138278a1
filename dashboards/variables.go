package dashboards

import (
	"watchlab/bench/telemetry/metric"
)

// byVariant has the labels that identify a variant. One implementation can have several deliveries.
var byVariant = []string{metric.Family, metric.Variant, metric.Delivery}

// picker offers the values of a label. All means any value, but requires the label.
func picker(name, description, query string) variable {
	return variable{Name: name, Label: name, Description: description, Query: query, Multi: true}
}

// Pickers of a run's labels. Each offers the values that the previous pickers leave.

func pickRun() variable {
	v := picker("run", "The name of a run", labelValues(process().of(metric.Phase), "run"))
	v.Descending = true
	return v
}

func pickPipeline() variable {
	return picker("pipeline", "queue: the queue alone; informer: client-go's controller; kubelet: sources, merge and sync loop", labelValues(ours().of(metric.Events), "pipeline"))
}

func pickStorm() variable {
	return picker("storm", "The storm", labelValues(ours().of(metric.Events), "storm"))
}

// played selects by the pickers of most dashboards.
func played() selector {
	return ours().among("pipeline", "pipeline").among("storm", "storm").among("family", "family").among("variant", "variant")
}

func playedPickers() []variable {
	return []variable{
		pickRun(), pickPipeline(), pickStorm(),
		picker("family", "The swappable stage: deltafifo, queue or merge", labelValues(ours().of(metric.Events), "family")),
		picker("variant", "The implementation of the family", labelValues(ours().among("family", "family").of(metric.Events), "variant")),
	}
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

module watchlab/bench/e2e/build/monitoring

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.93.0

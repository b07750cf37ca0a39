module modelcache.io/e2e/cluster/prometheus

go 1.26.0

tool (
	github.com/prometheus/prometheus/cmd/prometheus
	github.com/prometheus/prometheus/cmd/promtool
)

require (
	github.com/prometheus/prometheus v0.313.4 // indirect
)

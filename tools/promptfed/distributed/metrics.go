package distributed

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"promptfed/federation/engine/record"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/tools/promptfed/hostguard"
)

// meter exports the status of a server to Prometheus. It exports only numbers about clients that the command status
// shows.
type meter struct {
	server   *server.Server
	rounds   atomic.Int64 // committed
	accuracy atomic.Value // float64, of the last evaluated round
	loss     atomic.Value // float64
}

func newMeter(server *server.Server) *meter {
	m := &meter{server: server}
	m.accuracy.Store(math.NaN())
	m.loss.Store(0.0)
	return m
}

// round stores the numbers of a finished round.
func (m *meter) round(r record.Record) {
	m.rounds.Store(int64(r.Round) + 1)
	if r.Loss != nil {
		m.loss.Store(*r.Loss)
	}
	switch {
	case r.Evaluation != nil:
		m.accuracy.Store(r.Evaluation.Accuracy())
	case r.Tested:
		m.accuracy.Store(math.NaN())
	}
}

// Describe and Collect implement prometheus.Collector.
func (m *meter) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

func (m *meter) Collect(out chan<- prometheus.Metric) {
	s := m.server.Status()
	m.collect(&s, out)
}

// collect is Collect for a given status.
func (m *meter) collect(status *wire.Status, out chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, v float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("promptfed_"+name, help, nil, nil), kind, v)
	}
	send(prometheus.CounterValue, "rounds_total", "Finished rounds.", float64(m.rounds.Load()))
	send(prometheus.GaugeValue, "accuracy", "Mean accuracy over clients in the last tested round, in [0,1], of the "+
		"evaluation that eval.view names; NaN before, and where the method does not have it.",
		m.accuracy.Load().(float64))
	send(prometheus.GaugeValue, "loss", "Mean training loss of the last round.", m.loss.Load().(float64))
	for _, counter := range []struct {
		name, help string
		value      int64
		size       bool // the number reveals how many clients trained
	}{
		{"upload_bytes_total", "Bytes of accepted replies, headers included.", status.BytesUp, true},
		{"download_bytes_total", "Bytes of instructions, headers included.", status.BytesDown, true},
		{"replies_total", "Accepted replies.", status.Replies, true},
		{"late_replies_total", "Late and repeated replies, which are dropped.", status.Late, true},
		{"refused_replies_total", "Replies that were refused or hold no result.", status.Refused, true},
		{"refused_joins_total", "Refused requests to join.", status.RefusedJoins, false},
		{"repeated_orders_total", "Instructions repeated because fewer clients than the quorum answered.",
			status.Repeats, true},
	} {
		if !counter.size || !status.SecretSize {
			send(prometheus.CounterValue, counter.name, counter.help, float64(counter.value))
		}
	}

	yes := map[bool]float64{true: 1}
	for _, c := range status.Clients {
		gauge := func(name, help string, v float64) {
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc("promptfed_client_"+name, help,
				[]string{"client"}, nil), prometheus.GaugeValue, v, strconv.Itoa(c.Client))
		}
		gauge("joined", "1 if a client has joined and not left.", yes[c.Joined && !c.Left])
		gauge("seen_seconds", "Seconds since the connection of a client ended; 0 while it is connected, -1 for none.",
			c.Seen)
		if !status.Secret {
			gauge("lag", "1 if a client has an instruction that it has not answered.", yes[c.Asked && !c.Answered])
		}
	}
}

// serveMetrics answers /metrics and /healthz at an address until stop is called.
func serveMetrics(address string, meter *meter, log *slog.Logger) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(meter, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"ok": true, "rounds": meter.rounds.Load()})
	})

	ctx, stop := context.WithCancel(context.Background())
	go func() {
		if err := hostguard.Serve(ctx, listener, hostguard.Listening(address, listener.Addr(), mux)); err != nil {
			log.Error("metrics", "error", err)
		}
	}()
	log.Info("metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	return stop, nil
}

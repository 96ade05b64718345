package distributed

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"promptfed/federation/engine/record"
	"promptfed/federation/net/remote"
	"promptfed/tools/promptfed/hostguard"
)

// gauge is one number of the status of a server.
type gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(m *meter, s *remote.Status) float64
	size bool // the number reveals how many clients trained
}

// meter exports the status of a server to Prometheus. It exports only numbers about clients that the command status
// shows.
type meter struct {
	server   *remote.Server
	rounds   atomic.Int64 // committed
	accuracy atomic.Value // float64, of the last evaluated round
	loss     atomic.Value // float64
	gauges   []gauge
	client   map[string]*prometheus.Desc
}

func newMeter(server *remote.Server) *meter {
	m := &meter{server: server, client: map[string]*prometheus.Desc{}}
	m.accuracy.Store(math.NaN())
	m.loss.Store(0.0)
	add := func(kind prometheus.ValueType, name, help string, of func(m *meter, s *remote.Status) float64) *gauge {
		desc := prometheus.NewDesc("promptfed_"+name, help, nil, nil)
		m.gauges = append(m.gauges, gauge{desc: desc, kind: kind, of: of})
		return &m.gauges[len(m.gauges)-1]
	}
	count := func(name, help string, of func(s *remote.Status) int64) *gauge {
		return add(prometheus.CounterValue, name, help, func(_ *meter, s *remote.Status) float64 {
			return float64(of(s))
		})
	}
	sized := func(name, help string, of func(s *remote.Status) int64) { count(name, help, of).size = true }
	add(prometheus.CounterValue, "rounds_total", "Finished rounds.",
		func(m *meter, _ *remote.Status) float64 { return float64(m.rounds.Load()) })
	add(prometheus.GaugeValue, "accuracy", "Mean accuracy over clients in the last tested round, in [0,1], of the "+
		"evaluation that eval.view names; NaN before, and where the method does not have it.",
		func(m *meter, _ *remote.Status) float64 { return m.accuracy.Load().(float64) })
	add(prometheus.GaugeValue, "loss", "Mean training loss of the last round.",
		func(m *meter, _ *remote.Status) float64 { return m.loss.Load().(float64) })
	sized("upload_bytes_total", "Bytes of accepted replies, headers included.",
		func(s *remote.Status) int64 { return s.BytesUp })
	sized("download_bytes_total", "Bytes of instructions, headers included.",
		func(s *remote.Status) int64 { return s.BytesDown })
	sized("replies_total", "Accepted replies.", func(s *remote.Status) int64 { return s.Replies })
	sized("late_replies_total", "Late and repeated replies, which are dropped.",
		func(s *remote.Status) int64 { return s.Late })
	sized("refused_replies_total", "Replies that were refused or hold no result.",
		func(s *remote.Status) int64 { return s.Refused })
	count("refused_joins_total", "Refused requests to join.", func(s *remote.Status) int64 { return s.RefusedJoins })
	sized("repeated_orders_total", "Instructions repeated because fewer clients than the quorum answered.",
		func(s *remote.Status) int64 { return s.Repeats })
	for name, help := range map[string]string{"joined": "1 if a client has joined and not left.",
		"seen_seconds": "Seconds since the connection of a client ended; 0 while it is connected, -1 for none.",
		"lag":          "1 if a client has an instruction that it has not answered."} {
		m.client[name] = prometheus.NewDesc("promptfed_client_"+name, help, []string{"client"}, nil)
	}
	return m
}

// round stores the numbers of a finished round.
func (m *meter) round(r record.Record) {
	m.rounds.Store(int64(r.Round) + 1)
	m.loss.Store(r.Loss)
	switch {
	case r.Evaluation != nil:
		m.accuracy.Store(r.Evaluation.Accuracy())
	case r.Tested:
		m.accuracy.Store(math.NaN())
	}
}

// Describe and Collect implement prometheus.Collector.
func (m *meter) Describe(out chan<- *prometheus.Desc) {
	for _, g := range m.gauges {
		out <- g.desc
	}
	for _, d := range m.client {
		out <- d
	}
}

func (m *meter) Collect(out chan<- prometheus.Metric) {
	s := m.server.Status()
	m.collect(&s, out)
}

// collect is Collect for a given status.
func (m *meter) collect(s *remote.Status, out chan<- prometheus.Metric) {
	for _, g := range m.gauges {
		if !g.size || !s.SecretSize {
			out <- prometheus.MustNewConstMetric(g.desc, g.kind, g.of(m, s))
		}
	}
	yes := map[bool]float64{true: 1}
	for _, c := range s.Clients {
		id := strconv.Itoa(c.Client)
		for name, v := range map[string]float64{"joined": yes[c.Joined && !c.Left], "seen_seconds": c.Seen,
			"lag": yes[c.Asked && !c.Answered]} {
			if name != "lag" || !s.Secret {
				out <- prometheus.MustNewConstMetric(m.client[name], prometheus.GaugeValue, v, id)
			}
		}
	}
}

// serveMetrics answers /metrics and /healthz at an address until stop is called.
func serveMetrics(address string, m *meter, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"ok": true, "rounds": m.rounds.Load()})
	})
	server := &http.Server{Handler: hostguard.Listening(address, l.Addr(), mux), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics", "error", err)
		}
	}()
	log.Info("metrics", "url", "http://"+l.Addr().String()+"/metrics")
	return func() { server.Close() }, nil
}

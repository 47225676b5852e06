// Command collector is the OTLP receiver of the OpenTelemetry Collector, alone: it prints a line of
// JSON for each span that it receives by HTTP at the address in its argument.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: collector HOST:PORT")
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	cfg.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
	cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = os.Args[1]

	var lines sync.Mutex

	next, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error {
		lines.Lock()
		defer lines.Unlock()

		return printSpans(traces)
	})
	if err != nil {
		return err
	}

	settings := receiver.Settings{ID: component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings()}

	traces, err := factory.CreateTraces(ctx, settings, cfg, next)
	if err != nil {
		return err
	}

	if err := traces.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}

	<-ctx.Done()

	return traces.Shutdown(context.Background())
}

// A line is a span as it is printed.
type line struct {
	Name       string         `json:"name"`
	Trace      string         `json:"trace"`
	Span       string         `json:"span"`
	Parent     string         `json:"parent"`
	Attributes map[string]any `json:"attributes"`
	Resource   map[string]any `json:"resource"`
}

func printSpans(traces ptrace.Traces) error {
	out := json.NewEncoder(os.Stdout)

	for _, of := range traces.ResourceSpans().All() {
		for _, scope := range of.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				err := out.Encode(line{span.Name(), span.TraceID().String(), span.SpanID().String(),
					span.ParentSpanID().String(), span.Attributes().AsRaw(), of.Resource().Attributes().AsRaw()})
				if err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// Package tracing exports the spans of a node to an OpenTelemetry collector, over OTLP with HTTP and
// protobuf (ADR 0036). It is the only package that knows OpenTelemetry's SDK; the others mark their
// steps by directory/span.
//
// Nothing waits for the collector. Spans that end go into a queue of 4,096; one loop exports them in
// batches. A span that finds the queue full, or whose batch the collector doesn't take within ten
// seconds, is dropped and counted.
package tracing

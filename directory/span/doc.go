// Package span marks the steps of a node's work in OpenTelemetry traces (ADR 0036).
//
// A package that does a step calls Start with its caller's context, and ends the span that it gets.
// Without a trace in the context, which is always so while traces are off, nothing happens, and
// nothing is allocated. Only three kinds of work begin traces, each by a Tracer: requests, writes that
// another member forwards, and pages of peers.
//
// A span can't hold what a caller wrote: its name is one of this package's, and its attributes are
// numbers, methods of a fixed set and patterns of the route table.
package span

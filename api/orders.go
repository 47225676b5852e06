package api

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"

	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/operatorproof"
)

// Orders checks operators' requests as they arrive.
type Orders interface {
	operator.Orders
	// Accept checks the proof of a request and completes the request. A request whose body is
	// still to come has neither a body nor its hash. Errors are *directory.Error.
	Accept(r *directory.OperatorRequest) error
}

// maxOrder bounds the body of an operator's change: it goes into the domain's log as it came.
const maxOrder = 640 << 10

// orderCheck wraps the handlers of operators' changes.
type orderCheck struct {
	orders Orders
	index  func() string // Roster-Index of this node's state
}

// indexed wraps the handler of an operator's change: a successful answer has in Roster-Index a
// position of the domain's history at which the change is in force.
func (o orderCheck) indexed(handle request.Handler) request.Handler {
	return func(w http.ResponseWriter, call *request.Call) error {
		return handle(&indexedWriter{ResponseWriter: w, index: o.index}, call)
	}
}

// An indexedWriter adds Roster-Index to a successful answer that has none.
type indexedWriter struct {
	http.ResponseWriter
	index func() string
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (w *indexedWriter) WriteHeader(status int) {
	isSuccess := status >= http.StatusOK && status < http.StatusMultipleChoices
	if isSuccess && !w.begun && w.Header().Get("Roster-Index") == "" {
		w.Header().Set("Roster-Index", w.index())
	}

	w.begun = w.begun || status >= http.StatusOK
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *indexedWriter) Write(data []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}

	return w.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (w *indexedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// proven wraps the handler of an operator's change: it reads the body, checks the operator's
// proof, and puts the request into the context, so that the change carries it.
func (o orderCheck) proven(handle request.Handler) request.Handler {
	return func(w http.ResponseWriter, call *request.Call) error {
		body, err := request.ReadBody(w, call)

		switch {
		case err != nil:
			return err
		case len(body) > maxOrder:
			return directory.Refuse(directory.TooLarge, "an operator's change has at most %d bytes", maxOrder)
		}

		order := orderOf(call)
		order.Body, order.BodyHash = body, sha256.Sum256(body)

		if err := o.orders.Accept(order); err != nil {
			return err
		}

		// The body was consumed for its hash, so the handler reads this copy.
		ordered := withOrder(call, order)
		ordered.Body = io.NopCloser(bytes.NewReader(body))

		return handle(w, ordered)
	}
}

// provenStream is proven for a body that is too large to be read first: the proof is judged
// now, and the body's hash once it has come.
func (o orderCheck) provenStream(handle request.Handler) request.Handler {
	return func(w http.ResponseWriter, call *request.Call) error {
		order := orderOf(call)
		if err := o.orders.Accept(order); err != nil {
			return err
		}

		return handle(w, withOrder(call, order))
	}
}

// maybeProven is proven for a route that others than operators call: only a call with a proof,
// or by the operator of a node that demands none, is an operator's order.
func (o orderCheck) maybeProven(handle request.Handler) request.Handler {
	proven := o.proven(handle)

	return func(w http.ResponseWriter, call *request.Call) error {
		if call.Header.Get(operatorproof.Header) == "" {
			return handle(w, call)
		}

		return proven(w, call)
	}
}

func orderOf(call *request.Call) *directory.OperatorRequest {
	return &directory.OperatorRequest{
		By: call.Identity, Method: call.Method, Target: call.URL.RequestURI(),
		Proof: call.Header.Get(operatorproof.Header),
	}
}

// withOrder puts an operator's request into the context of its call.
func withOrder(call *request.Call, order *directory.OperatorRequest) *request.Call {
	call.Request = call.WithContext(directory.WithOperatorRequest(call.Context(), order))
	return call
}

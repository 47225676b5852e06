package protocol

import (
	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
)

// MaxFarewell bounds the body of a farewell, in bytes.
const MaxFarewell = 128 << 10

// farewell is the body of a farewell: the request of the operator that has ended the peering.
type farewell struct {
	Method string `json:"method"`
	Target string `json:"target"`
	Body   []byte `json:"body"`
	Proof  string `json:"proof"`
}

// EncodeFarewell returns the body of a farewell.
func EncodeFarewell(r *directory.OperatorRequest) ([]byte, error) {
	return json.Marshal(farewell{r.Method, r.Target, r.Body, r.Proof})
}

// ParseFarewell returns the operator's request in a farewell; nil if the body is empty.
func ParseFarewell(body []byte) (*directory.OperatorRequest, error) {
	if len(body) == 0 {
		return nil, nil
	}

	var said farewell
	if err := json.Unmarshal(body, &said); err != nil {
		return nil, directory.Refuse(directory.BadRequest, "malformed farewell: %w", err)
	}

	return &directory.OperatorRequest{Method: said.Method, Target: said.Target, Body: said.Body, Proof: said.Proof}, nil
}

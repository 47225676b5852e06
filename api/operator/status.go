package operator

import (
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// A State reports a node's view of its domain and of its peers.
type State interface {
	Node() wire.NodeStatus
	Raft() wire.RaftStatus
	Members() []wire.Member
	Peers() []wire.Peer
	// Evidence is a file that Peers lists of a domain; the oldest if id is empty.
	Evidence(domain spiffeid.TrustDomain, id string) ([]byte, error)
}

// A Status answers operators' questions about a node's state.
type Status struct{ State State }

// Node answers GET /v1/operator/status.
func (s *Status) Node(w http.ResponseWriter, c *request.Call) error {
	return response.Status(w, c, s.State.Node())
}

// Raft answers GET /v1/operator/raft.
func (s *Status) Raft(w http.ResponseWriter, c *request.Call) error {
	return response.Status(w, c, s.State.Raft())
}

// Members answers GET /v1/operator/members.
func (s *Status) Members(w http.ResponseWriter, c *request.Call) error {
	return response.Status(w, c, wire.Members{Members: s.State.Members()})
}

// Peers answers GET /v1/operator/peers.
func (s *Status) Peers(w http.ResponseWriter, c *request.Call) error {
	return response.Status(w, c, wire.Peers{Peers: s.State.Peers()})
}

// Evidence answers GET /v1/operator/peers/evidence with a file for roster verify.
func (s *Status) Evidence(w http.ResponseWriter, call *request.Call) error {
	query := call.URL.Query()

	td, err := spiffeid.TrustDomainFromString(query.Get("domain"))
	if err != nil || td.Name() != query.Get("domain") {
		return directory.Refuse(directory.BadQuery,
			"domain must be a trust domain such as beta.test, got %.100q", query.Get("domain"))
	}

	file, err := s.State.Evidence(td, query.Get("id"))
	if err != nil {
		return err
	}

	response.NoStore(w)
	response.Write(w, call.Request, http.StatusOK, "application/json", file)

	return nil
}

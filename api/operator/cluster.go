package operator

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// Members changes the domain's Raft members, at whichever of them it is called. Its
// errors are *directory.Error.
type Members interface {
	// Transfer gives the leadership to a node, or to any suitable one if to is zero.
	Transfer(ctx context.Context, to spiffeid.ID) error
	// Remove removes a node from the domain.
	Remove(ctx context.Context, id spiffeid.ID) error
	// Admit lets a node join, once and within a day; withdraw takes that back.
	Admit(ctx context.Context, id spiffeid.ID, withdraw bool) error
	// AdmitStanding lets the nodes join whose IDs match a pattern, while the domain has fewer
	// than most members that do; 0 takes that back.
	AdmitStanding(ctx context.Context, pattern string, most uint32) error
	// Leave removes this node from its domain.
	Leave(ctx context.Context) error
	// ConfirmClock confirms the step of the leader's clock, which is about the given one.
	ConfirmClock(ctx context.Context, step time.Duration) error
}

// A Cluster answers the routes of the domain's Raft members.
type Cluster struct {
	Members Members
	Logger  *slog.Logger
}

// Transfer answers POST /v1/operator/raft/transfer.
func (h *Cluster) Transfer(w http.ResponseWriter, call *request.Call) error {
	in, to, err := readMember(w, call, true)
	if err == nil {
		err = h.Members.Transfer(call.Context(), to)
	}

	if err != nil {
		return err
	}

	return h.done(w, call, "transfer", in.ID)
}

// Remove answers POST /v1/operator/raft/remove.
func (h *Cluster) Remove(w http.ResponseWriter, call *request.Call) error {
	in, id, err := readMember(w, call, false)
	if err == nil {
		err = h.Members.Remove(call.Context(), id)
	}

	if err != nil {
		return err
	}

	return h.done(w, call, "remove", in.ID)
}

// Admit answers POST /v1/operator/raft/admit.
func (h *Cluster) Admit(w http.ResponseWriter, call *request.Call) error {
	var in wire.MemberRequest
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	if err := h.admit(call.Context(), &in); err != nil {
		return err
	}

	return h.done(w, call, "admit", in.ID)
}

func (h *Cluster) admit(ctx context.Context, in *wire.MemberRequest) error {
	if in.Standing {
		most := in.Max
		if in.Withdraw {
			most = 0
		} else if most == 0 {
			return directory.Refuse(directory.BadRequest, "max is missing: how many members may match the pattern").
				At("/max")
		}

		return h.Members.AdmitStanding(ctx, in.ID, most)
	}

	id, err := parseMember(in.ID)
	if err != nil {
		return err
	}

	return h.Members.Admit(ctx, id, in.Withdraw)
}

// Leave answers POST /v1/operator/raft/leave.
func (h *Cluster) Leave(w http.ResponseWriter, call *request.Call) error {
	if err := h.Members.Leave(call.Context()); err != nil {
		return err
	}

	return h.done(w, call, "leave", "this node")
}

// ConfirmClock answers POST /v1/operator/raft/clock.
func (h *Cluster) ConfirmClock(w http.ResponseWriter, call *request.Call) error {
	var in wire.ClockStep
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	step, err := clockStep(in)
	if err != nil {
		return err
	}

	if err := h.Members.ConfirmClock(call.Context(), step); err != nil {
		return err
	}

	h.Logger.Info("a step of the clock was confirmed", "request_id", call.RequestID, "caller", call.Identity.String(),
		"step_ms", step.Milliseconds())
	response.NoStore(w)

	return response.NoContent(w)
}

// clockStep returns the step that a body names.
func clockStep(in wire.ClockStep) (time.Duration, error) {
	const most = 100 * 365 * 24 * 60 * 60

	if abs, least := math.Abs(in.Seconds), directory.MaxStep.Seconds(); abs <= least || abs > most {
		return 0, directory.Refuse(directory.BadRequest,
			"step_seconds must be over %v or under -%v, as the status of a node says it, got %v", least, least,
			in.Seconds).At("/step_seconds")
	}

	return time.Duration(in.Seconds * float64(time.Second)), nil
}

// readMember reads a body that names a node. If it is optional and absent, the id is zero.
func readMember(
	w http.ResponseWriter, c *request.Call, optional bool,
) (in wire.MemberRequest, id spiffeid.ID, err error) {
	body, err := request.ReadBody(w, c)
	if err != nil || len(body) == 0 && optional {
		return in, id, err
	}

	if err := request.ParseObject(body, &in); err != nil {
		return in, id, err
	}

	if in.ID == "" && optional {
		return in, id, nil
	}

	id, err = parseMember(in.ID)

	return in, id, err
}

func parseMember(text string) (spiffeid.ID, error) {
	id, err := spiffeid.FromString(text)
	if err != nil {
		return id, directory.Refuse(directory.BadRequest, "id must be a node's SPIFFE ID, got %.100q", text).At("/id")
	}

	return id, nil
}

// done logs a change of the domain's members with its caller, and answers it.
func (h *Cluster) done(w http.ResponseWriter, c *request.Call, change, node string) error {
	attrs := []any{"request_id", c.RequestID, "caller", c.Identity.String(), "change", change}
	if node != "" {
		attrs = append(attrs, "node", node)
	}

	h.Logger.Info("the domain's members changed", attrs...)
	response.NoStore(w)

	return response.NoContent(w)
}

package ad

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// renewalsPerRequest is how many renewals count as one write against a caller's quota:
// about their cost.
const renewalsPerRequest = 50

// RefreshMany answers POST /ad/refresh, which this directory adds to the draft: a refresh
// of each registration of a list (jimenez 4.4), in one change of the log. Each is
// authorised and answered as it would be alone.
func (h *Handler) RefreshMany(w http.ResponseWriter, call *request.Call) error {
	renewals, err := readRenewals(w, call)
	if err != nil {
		return err
	}

	// A long list is as much work as several requests.
	if err := h.Limiter.PaceMore(call.Caller(), admission.Writes, len(renewals)/renewalsPerRequest); err != nil {
		return err
	}

	var renewed []wire.Renewed

	outcome, err := h.Writer.Propose(call, func() (outcome directory.Outcome, err error) {
		outcome, renewed, err = h.renew(call, renewals)
		return outcome, err
	})
	if err != nil {
		return err
	}

	if outcome.Position.Epoch != 0 {
		w.Header().Set("Roster-Index", directory.FormatIndex(h.Domain, outcome.Position))
	}

	response.Private(w)
	response.Write(w, call.Request, http.StatusOK, "application/json", appendRenewed(renewals, renewed))

	return nil
}

// renew refreshes those registrations of a list that the caller may refresh, and returns
// the result of each.
func (h *Handler) renew(
	call *request.Call, renewals []wire.Renewal,
) (outcome directory.Outcome, renewed []wire.Renewed, err error) {
	targets := h.Writer.Targets(call)
	refresh := directory.RefreshBatch{Caller: h.Reader.Guard.Requester(call)}
	renewed = make([]wire.Renewed, len(renewals))

	var places []int // of refresh.Items, in renewals

	var found []registration.Target // of refresh.Items

	seen := make(map[directory.RID]int, len(renewals))

	for i, renewal := range renewals {
		target, err := h.renewable(call, targets, renewal)
		if directory.ProblemOf(err) == directory.Unavailable { // nothing of the list can be renewed
			return outcome, nil, err
		}

		if err != nil {
			renewed[i] = refusedRenewal(err)
			continue
		}

		if first, twice := seen[target.RID]; twice {
			return outcome, nil, directory.Refuse(directory.BadRequest,
				"items %d and %d name the same registration; list each once", first+1, i+1)
		}

		seen[target.RID] = i

		lifetime := h.Writer.CapRefresh(call, renewal.LifetimeSeconds, target.Entry)
		refresh.Items = append(refresh.Items, directory.Renewal{RID: target.RID, Lifetime: lifetime})
		places = append(places, i)
		found = append(found, target)
	}

	if len(refresh.Items) == 0 {
		return outcome, renewed, nil
	}

	if outcome, err = h.Registry.RefreshMany(call.Context(), refresh); err != nil {
		return outcome, nil, err
	}

	for at, result := range outcome.Each {
		i := places[at]
		if result.Err != nil {
			// The leader's error must not disclose a registration that the caller may not see.
			renewed[i] = refusedRenewal(found[at].Hide(result.Err))
		} else {
			renewed[i] = wire.Renewed{Status: http.StatusNoContent, LifetimeSeconds: result.Granted}
		}
	}

	return outcome, renewed, nil
}

// readRenewals reads a body that is a list of renewals.
func readRenewals(w http.ResponseWriter, c *request.Call) ([]wire.Renewal, error) {
	body, err := request.ReadBody(w, c)
	if err != nil {
		return nil, err
	}

	var renewals []wire.Renewal
	if err := directory.UnmarshalBody(body, &renewals, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}

	if len(renewals) == 0 || len(renewals) > directory.MaxRenewals {
		return nil, directory.Refuse(directory.BadRequest,
			"the body must list 1 to %d registrations, got %d", directory.MaxRenewals, len(renewals))
	}

	if slices.ContainsFunc(renewals, func(r wire.Renewal) bool { return len(r.ID) > directory.MaxName }) {
		return nil, directory.Refuse(directory.BadRequest, "an id has at most %d bytes", directory.MaxName)
	}

	return renewals, nil
}

// renewable finds the registration of a renewal, and asks policy about it.
func (h *Handler) renewable(
	call *request.Call, targets *registration.Targets, renewal wire.Renewal,
) (registration.Target, error) {
	if lt := renewal.LifetimeSeconds; lt != 0 && lt < directory.MinLifetime {
		return registration.Target{}, directory.Refuse(directory.BadLifetime,
			"lt must be a whole number of seconds from %d to 4294967295, got %d", directory.MinLifetime, lt)
	}

	if err := h.Writer.CheckMin(call, renewal.LifetimeSeconds); err != nil {
		return registration.Target{}, err
	}

	return targets.Renewable(registration.Name{ID: renewal.ID})
}

func refusedRenewal(err error) wire.Renewed {
	refused := problem.Explain(err)

	return wire.Renewed{
		Status:  refused.Rule().Status,
		Problem: string(refused.Err.Problem),
		Detail:  refused.Err.Detail,
	}
}

// appendRenewed returns the answer: an array in the order of the request's.
func appendRenewed(renewals []wire.Renewal, renewed []wire.Renewed) []byte {
	data := append(make([]byte, 0, 80*len(renewed)), '[')
	for i, result := range renewed {
		if i > 0 {
			data = append(data, ',')
		}

		data = strictjson.AppendText(append(data, '{'), "id", renewals[i].ID)

		data = strictjson.AppendUint(data, "status", uint64(result.Status))
		if result.Problem == "" {
			data = strictjson.AppendUint(data, "lt", uint64(result.LifetimeSeconds))
		} else {
			data = strictjson.AppendText(data, "problem", result.Problem)
			data = strictjson.AppendText(data, "detail", result.Detail)
		}

		data = append(data, '}')
	}

	return append(data, ']', '\n')
}

package api

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// renewalsAToken is how many renewals count as one write against a caller's
// quota: about what they cost.
const renewalsAToken = 50

// refreshMany answers POST /ad/refresh, which is ours: a refresh of each of a list
// (jimenez 4.4), in one change of the log. Who may refresh one alone may do it so,
// and each is answered as it would have been alone.
func (s *Server) refreshMany(w http.ResponseWriter, c *call) error {
	items, err := readRenewals(w, c)
	if err != nil {
		return err
	}
	if err := s.paceMore(c, Writes, len(items)/renewalsAToken); err != nil {
		return err
	}
	var told []wire.Renewed
	out, err := s.judged(c, func() (out directory.Outcome, err error) {
		out, told, err = s.renew(c, items)
		return out, err
	})
	if err != nil {
		return err
	}
	if out.Position.Epoch != 0 {
		w.Header().Set("Roster-Index", directory.FormatIndex(s.cfg.Domain, out.Position))
	}
	private(w)
	write(w, c.Request, http.StatusOK, "application/json", appendRenewed(items, told))
	return nil
}

// renew refreshes each of a list that the caller may, and tells of each.
func (s *Server) renew(c *call, items []wire.Renewal) (out directory.Outcome, told []wire.Renewed, err error) {
	fresh := s.newNames(c)
	told = make([]wire.Renewed, len(items))
	ask := directory.RefreshingMany{Caller: s.caller(c)}
	var places []int // in items, of what is asked for
	var known []bool // here
	for i, item := range items {
		e, rid, err := s.renewable(c, item, fresh)
		if err != nil {
			told[i] = refusedRenewal(err)
			continue
		}
		ask.Items = append(ask.Items, directory.Renewal{RID: rid, Lifetime: s.cappedOf(c, item.LifetimeSeconds, e)})
		places, known = append(places, i), append(known, e != nil)
	}
	if len(ask.Items) == 0 {
		return out, told, nil
	}
	if out, err = s.cfg.Registry.RefreshMany(c.Context(), ask); err != nil {
		return out, nil, err
	}
	for at, r := range out.Each {
		i := places[at]
		if r.Err != nil {
			told[i] = refusedRenewal(veiledFrom(items[i].ID, known[at], r.Err))
		} else {
			told[i] = wire.Renewed{Status: http.StatusNoContent, LifetimeSeconds: r.Granted}
		}
	}
	return out, told, nil
}

// readRenewals reads the list that a body is.
func readRenewals(w http.ResponseWriter, c *call) ([]wire.Renewal, error) {
	body, err := readBody(w, c)
	if err != nil {
		return nil, err
	}
	var items []wire.Renewal
	if err := json.Unmarshal(body, &items, json.RejectUnknownMembers(true)); err != nil {
		return nil, directory.Refuse(directory.BadRequest, `The body is no array of {"id": RID or NAME, "lt": seconds}: %w`, err)
	}
	if len(items) == 0 || len(items) > directory.MaxRenewals {
		return nil, directory.Refuse(directory.BadRequest, "There are %d registrations in the body; 1 to %d are refreshed at once.", len(items), directory.MaxRenewals)
	}
	return items, nil
}

// renewable finds one of a list, as target finds the one of a path.
func (s *Server) renewable(c *call, item wire.Renewal, fresh func() error) (*directory.Entry, directory.RID, error) {
	if item.LifetimeSeconds != 0 && item.LifetimeSeconds < directory.MinLifetime {
		return nil, directory.RID{}, directory.Refuse(directory.BadLifetime, "lt is %d; it is a whole number of seconds from %d to 4294967295", item.LifetimeSeconds, directory.MinLifetime)
	}
	if err := longEnough(item.LifetimeSeconds, s.shortest(c)); err != nil {
		return nil, directory.RID{}, err
	}
	return s.targetOf(c, item.ID, fresh)
}

func refusedRenewal(err error) wire.Renewed {
	refused := problem.Explain(err)
	why := refused.Err
	return wire.Renewed{Status: refused.Rule().Status, Problem: string(why.Problem), Detail: why.Detail}
}

// appendRenewed writes the answer: an array in the order of what was asked.
func appendRenewed(items []wire.Renewal, told []wire.Renewed) []byte {
	b := append(make([]byte, 0, 80*len(told)), '[')
	for i, r := range told {
		if i > 0 {
			b = append(b, ',')
		}
		b = strictjson.AppendText(append(b, '{'), "id", items[i].ID)
		b = strictjson.AppendUint(b, "status", uint64(r.Status))
		if r.Problem == "" {
			b = strictjson.AppendUint(b, "lt", uint64(r.LifetimeSeconds))
		} else {
			b = strictjson.AppendText(b, "problem", r.Problem)
			b = strictjson.AppendText(b, "detail", r.Detail)
		}
		b = append(b, '}')
	}
	return append(b, ']', '\n')
}

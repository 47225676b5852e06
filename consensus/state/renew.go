package state

import (
	"github.com/roster-mesh/roster/directory"
)

// Many refreshes are one command of one log entry: what a refresh costs alone is
// mostly its way there.

func PackRenewals(items []directory.Renewal) Renewals {
	var p Renewals
	for i, item := range items {
		p.RIDs = item.RID.AppendBinary(p.RIDs)
		if item.Lifetime != 0 && p.Lifetimes == nil {
			p.Lifetimes = make([]uint32, len(items))
		}
		if item.Lifetime != 0 {
			p.Lifetimes[i] = item.Lifetime
		}
	}
	return p
}

func (p *Renewals) Count() int { return len(p.RIDs) / directory.RIDBinary }

// at returns one of them.
func (p *Renewals) At(i int) directory.Renewal {
	r := directory.Renewal{RID: directory.RIDOf([directory.RIDBinary]byte(p.RIDs[i*directory.RIDBinary:]))}
	if p.Lifetimes != nil {
		r.Lifetime = p.Lifetimes[i]
	}
	return r
}

// check refuses what no member of this release sends.
func (p *Renewals) Check() error {
	n := p.Count()
	if n == 0 || n > directory.MaxRenewals || len(p.RIDs)%directory.RIDBinary != 0 || p.Lifetimes != nil && len(p.Lifetimes) != n {
		return directory.Refuse(directory.BadRequest, "1 to %d registrations are refreshed at once", directory.MaxRenewals)
	}
	return nil
}

// renewMany refreshes each by itself, in one command.
func (r *Registrations) renewMany(c *Renew) (directory.Outcome, error) {
	if err := c.Renewals.Check(); err != nil {
		return directory.Outcome{}, err
	}
	each := make([]directory.Renewed, c.Renewals.Count())
	for i := range each {
		r.step()
		item := c.Renewals.At(i)
		out, err := r.refresh(&Refresh{item.RID, c.Caller, c.Commissioning, item.Lifetime, nil})
		each[i] = directory.Renewed{Granted: out.Granted, Err: err}
	}
	return directory.Outcome{Each: each}, nil
}

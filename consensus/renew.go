package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/roster-mesh/roster/directory"
)

// Many refreshes are one command of one log entry: what a refresh costs alone is
// mostly its way there.

// maxChanges is with how many changes a log entry takes no more lists, and a message to
// the leader nothing more: who waits for the next one waits until all of this are
// applied. One list is as much.
const maxChanges = directory.MaxRenewals

// maxAlone bounds how many items of a RefreshMany that cannot share its log entry
// are under way at once.
const maxAlone = 64

func packRenewals(items []directory.Renewal) renewals {
	var p renewals
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

func (p *renewals) count() int { return len(p.RIDs) / directory.RIDBinary }

// at returns one of them.
func (p *renewals) at(i int) directory.Renewal {
	r := directory.Renewal{RID: directory.RIDOf([directory.RIDBinary]byte(p.RIDs[i*directory.RIDBinary:]))}
	if p.Lifetimes != nil {
		r.Lifetime = p.Lifetimes[i]
	}
	return r
}

// check refuses what no member of this release sends.
func (p *renewals) check() error {
	n := p.count()
	if n == 0 || n > directory.MaxRenewals || len(p.RIDs)%directory.RIDBinary != 0 || p.Lifetimes != nil && len(p.Lifetimes) != n {
		return directory.Refuse(directory.BadRequest, "1 to %d registrations are refreshed at once", directory.MaxRenewals)
	}
	return nil
}

// prepareRenew makes the command. Lifetimes are granted up to the maximum.
func (s *Store) prepareRenew(r *renewRequest) (*command, error) {
	if err := r.Renewals.check(); err != nil {
		return nil, err
	}
	granted := renewals{RIDs: r.Renewals.RIDs}
	for _, lifetime := range r.Renewals.Lifetimes {
		granted.Lifetimes = append(granted.Lifetimes, s.grantLifetime(lifetime))
	}
	return &command{Renew: &renew{r.Caller.Identity, r.Caller.Commissioning, granted}}, nil
}

// renewMany refreshes each by itself, in one command.
func (s *state) renewMany(c *renew) (directory.Outcome, error) {
	if err := c.Renewals.check(); err != nil {
		return directory.Outcome{}, err
	}
	each := make([]directory.Renewed, c.Renewals.count())
	for i := range each {
		s.step()
		r := c.Renewals.at(i)
		out, err := s.refresh(&refresh{r.RID, c.Caller, c.Commissioning, r.Lifetime, nil})
		each[i] = directory.Renewed{Granted: out.Granted, Err: err}
	}
	return directory.Outcome{Each: each}, nil
}

// leadAlone refreshes, one by one, what could not share the command of a
// RefreshMany: what a restored history has not confirmed yet takes a statement
// each.
func (s *Store) leadAlone(ctx context.Context, req *renewRequest, out *directory.Outcome) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards out.Position
	slots := make(chan struct{}, maxAlone)
	who := req.Caller
	who.Proof, who.ProofUntil, who.Judged = directory.Hash{}, 0, nil // the command that found these has spent it, and was judged
	for i := range out.Each {
		if !errors.Is(out.Each[i].Err, errMoved) {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r := req.Renewals.at(i)
			one, err := s.lead(ctx, &request{Refresh: &refreshRequest{who, r.RID, r.Lifetime, nil, nil, 0}})
			out.Each[i] = directory.Renewed{Granted: one.Granted, Err: err}
			if errors.Is(err, errNotLeader) {
				out.Each[i].Err = directory.Refuse(directory.Unavailable, "the leader changed meanwhile; nothing was changed: try again")
			}
			mu.Lock()
			defer mu.Unlock()
			if out.Position.Before(one.Position) {
				out.Position = one.Position
			}
		})
	}
	all.Wait()
}

// unrenewed is an item of a RefreshMany that was refused.
type unrenewed struct {
	Item    uint32            `cbor:"1,keyasint"`
	Problem directory.Problem `cbor:"2,keyasint"`
	Detail  string            `cbor:"3,keyasint"`
}

func packRenewed(each []directory.Renewed) (granted []uint32, refused []unrenewed) {
	for i, r := range each {
		granted = append(granted, r.Granted)
		if r.Err != nil {
			why := replyOf(directory.Outcome{}, r.Err)
			refused = append(refused, unrenewed{uint32(i), why.Problem, why.Detail})
		}
	}
	return granted, refused
}

func unpackRenewed(granted []uint32, refused []unrenewed) ([]directory.Renewed, error) {
	if len(granted) == 0 {
		return nil, nil
	}
	each := make([]directory.Renewed, len(granted))
	for i, g := range granted {
		each[i].Granted = g
	}
	for _, r := range refused {
		if int(r.Item) >= len(each) {
			return nil, unknown(fmt.Errorf("the leader refused item %d of %d", r.Item, len(each)))
		}
		each[r.Item].Err = &directory.Error{Problem: r.Problem, Detail: r.Detail}
	}
	return each, nil
}

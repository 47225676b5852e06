package federation

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/federation/protocol"
)

const (
	keysEvery  = time.Second // pulls of keys that a pushed message, or a subscription, may cause
	issueBurst = 8           // of those that subscriptions cause
	lateMost   = 8           // messages of an origin that wait for its key document
)

// errLate says that a message is to be judged again once the key document was asked for.
var errLate = errors.New("it is by a key that is not known yet")

// withKeys has a message judged, and once more with the newest key document where it is by
// a key that the one here lacks. What was pushed is judged later where that document
// can't be asked for now, or came from a node that hasn't heard of its domain's newest
// itself: who rotates his key is seldom refused anything for that. A second time it isn't put
// off, so that who forges gains a second.
func (rc *receiver) withKeys(ctx context.Context, from sender, giver protocol.Node, judge func() (*origin, error)) (*origin, error) {
	o, err := judge()
	if protocol.CodeOf(err) != protocol.CodeKeyUnknown {
		return o, err
	}
	if o.contacts.mayRefresh(from) {
		if failed := rc.refreshKeys(ctx, o, giver); failed != nil {
			err = &protocol.Refusal{Code: protocol.CodeKeyUnknown, Origin: o.domain, Err: failed}
		} else {
			o, err = judge()
		}
	}
	if protocol.CodeOf(err) == protocol.CodeKeyUnknown && from.pushed && !from.again {
		return o, errLate
	}
	return o, err
}

// mayRefresh paces the pulls of keys that pushed messages cause. One that is put
// off is made up for by asking for the head (tend): nobody may push again.
func (ct *contacts) mayRefresh(from sender) bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	now := time.Now()
	if from.pushed && now.Sub(ct.keysAsked) < keysEvery {
		ct.keysDue = true
		return false
	}
	ct.keysAsked = now
	return true
}

// putOff reports, once, whether a pull of keys was put off.
func (ct *contacts) putOff() (due bool) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	due, ct.keysDue = ct.keysDue, false
	return due
}

// putAside keeps a message that is to be judged later, which tend sees to. One for which
// there is no room is refused now.
func (fl *follower) putAside(o *origin, p pushed) {
	if len(o.mailbox.late) == lateMost {
		_ = fl.receiver.refuse(p.from, p.msg, &protocol.Refusal{Code: protocol.CodeKeyUnknown, Origin: o.domain, Err: errLate})
		return
	}
	p.from.again = true
	o.mailbox.late = append(o.mailbox.late, p)
}

// openLate asks another node of the origin than before for its head, and with that for
// its key document, and judges what waited for it.
func (fl *follower) openLate(ctx context.Context, o *origin) {
	fl.askNextHead(ctx, o)
	late := o.mailbox.late
	o.mailbox.late = nil
	for _, p := range late {
		fl.open(ctx, o, p)
	}
}

package replica

import (
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A KeyTestimony is a node's statement about the key document of its domain, signed by its own key. It
// does not depend on the document that this node has adopted, which may be false (rule S14).
type KeyTestimony struct {
	Node  spiffeid.ID
	Issue directory.Position
	Text  string // of the key document
}

// UnconfirmedKeys returns the issue of the adopted key document and its signer. It is false if another
// node of the origin has reached that issue, and if no document is adopted.
func (o *Origin) UnconfirmedKeys() (issued statedPosition, is bool) {
	doc, text, ok := o.Cfg.Keys.Keys(o.Domain)
	if !ok {
		return issued, false
	}

	issued = statedPosition{protocol.Issue(doc), o.signerOf(text), doubtKeys}

	return issued, !o.keyDoubts.attested(issued.by.node, issued.Position)
}

// HearKeys compares the adopted key document with those of the origin's other nodes, and reports whether
// one of them has reached its issue (settled). A document so far ahead that the domain never reaches it
// would keep out all later ones until it ends: its node is distrusted by the rule that holds for pages, and
// the newest document of the others takes its place.
func (o *Origin) HearKeys(issued statedPosition, all []KeyTestimony, now time.Time) (settled bool, err error) {
	all = slices.DeleteFunc(all, func(t KeyTestimony) bool { return o.Doubts.distrusts(t.Node, now) })

	issues := make([]Testimony, len(all))
	for i, testimony := range all {
		issues[i] = Testimony{Node: testimony.Node, At: testimony.Issue}
	}

	found, reached := issued.compare(issues)

	distrusted, from, is := o.keyDoubts.weigh(found, issues, now)
	if !is {
		return reached, nil
	}

	return false, o.replaceKeys(distrusted, from, all)
}

// replaceKeys puts the newest key document of the other nodes in the place of that of a distrusted node,
// and pulls the streams again.
func (o *Origin) replaceKeys(distrusted Doubtful, from directory.Position, all []KeyTestimony) error {
	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	// No lock was held while the nodes were asked, so another document may have come.
	if issued, _ := o.UnconfirmedKeys(); o.HasEnded() || issued.by.node != distrusted.Node {
		return nil
	}

	var newest KeyTestimony

	for _, testimony := range all {
		if testimony.Node != distrusted.Node && newest.Issue.Before(testimony.Issue) {
			newest = testimony
		}
	}

	o.noteDistrust(distrusted)
	o.keyDoubts.distrust(distrusted)

	// The false document may have revoked keys of honest nodes.
	o.Keys.setRevoked(nil)

	if err := o.ReplaceKeys(ParseKeys(newest.Text), newest.Text); err != nil {
		return err
	}

	if err := o.repull(from); err != nil {
		return err
	}

	// The keyring comes last: as long as it has the false document, the nodes contradict it, and all of this is
	// repeated after a failure of the disk.
	if err := o.Cfg.Keys.Replace(o.Domain, newest.Text); err != nil {
		return err
	}

	o.Cfg.Doubted(o.Domain, distrusted)

	// The false document may have ended the export to this domain.
	return o.obey()
}

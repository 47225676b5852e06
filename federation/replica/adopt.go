package replica

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Adopt gives a key document to the keyring, and keeps on disk the earlier ones that
// superseded returns. A document is not adopted if there is no room for those. A known
// document is a sign of life only if a node of the origin gave it (firstHand), because
// others may repeat it while it is valid.
func (o *Origin) Adopt(text string, firstHand bool) error {
	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	if o.HasEnded() {
		return nil
	}

	if o.Doubts.distrusts(issuerOf(text), time.Now()) {
		return errDistrustedKeys
	}

	// The room is checked first, because the keyring doesn't take an adopted document back.
	if claimed := ParseKeys(text); claimed != nil && text != o.Keys.newest.text && !o.contradicts(claimed) {
		if _, err := o.Keys.superseded(claimed, o.certified); err != nil {
			return err
		}
	}

	if _, err := o.Cfg.Keys.Adopt(o.Domain, text); err != nil {
		return err
	}

	if firstHand {
		o.hear()
	}

	// If a step fails, newest stays behind the keyring's document, and the next Adopt repeats them.
	if doc, kept, ok := o.Cfg.Keys.Keys(o.Domain); ok {
		if err := o.RepullRevoked(doc); err != nil {
			return err
		}

		if kept != o.Keys.newest.text {
			o.hear()

			if err := o.ReplaceKeys(doc, kept); err != nil {
				return err
			}

			o.Moved() // subscribers are notified
		}
	}

	return o.obey()
}

var errDistrustedKeys = errors.New("other nodes of the domain contradict the node that signed the key document")

// issuerOf returns the node that signed a key document, by the document's own word; zero if it lists none.
func issuerOf(text string) spiffeid.ID {
	doc := ParseKeys(text)

	parts, err := protocol.SplitJWS(text)
	if doc == nil || err != nil {
		return spiffeid.ID{}
	}

	// An unknown key is the zero key, of the zero node.
	key, _ := doc.Key(protocol.KeyIDOf(parts.Header))

	return key.Node
}

// certified reports whether a present authority of the origin certified a key.
func (o *Origin) certified(key signed.SigningKey) bool { return o.Cfg.Keys.Certifies(o.Domain, key) }

// contradicts reports whether a document has the issue of the adopted one and may thus
// be evidence (E3). Such a document isn't adopted, and needs no room.
func (o *Origin) contradicts(claimed *signed.KeyDocument) bool {
	doc, _, ok := o.Cfg.Keys.Keys(o.Domain)
	return ok && protocol.Issue(doc) == protocol.Issue(claimed)
}

// ReplaceKeys stores an origin's newest key document. The caller holds change.
func (o *Origin) ReplaceKeys(doc *signed.KeyDocument, text string) error {
	past, err := o.Keys.superseded(doc, o.certified)
	if err != nil {
		return err
	}

	texts := make([]string, 0, len(past))
	for _, d := range past {
		texts = append(texts, d.text)
	}

	st := o.saved()
	st.Keys = text

	if err := o.Store.SaveKeys(o.Domain, texts, st); err != nil {
		return err
	}

	o.Keys.replace(text, past)

	o.mu.Lock()
	defer o.mu.Unlock()

	o.kept.Keys = text

	return nil
}

// loadPast returns the earlier key documents that ReplaceKeys stored.
func (o *Origin) loadPast(td spiffeid.TrustDomain) (all []keyDocument, err error) {
	texts, err := o.Store.PastKeys(td)
	for _, text := range texts {
		if doc := ParseKeys(text); doc != nil {
			all = append(all, keyDocument{text, time.Now(), doc})
		}
	}

	return all, err
}

package federation

import (
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"
)

// maxPast bounds the key documents of an origin that are kept beside the newest. A
// page is shown to others by the one that lists its key, and an origin could else
// escape evidence by signing with another key (federation.md, "Evidence").
const maxPast = 7

// replaceKeys takes the origin's newest key document, and keeps the one before
// where that lists a key which the newest doesn't. o.mu is held.
func (m *Mesh) replaceKeys(o *origin, doc *directory.KeyDocument, text string) error {
	past := o.past
	if old := parseKeys(o.keysText); old != nil && slices.ContainsFunc(old.Keys, func(k directory.SigningKey) bool {
		return !slices.ContainsFunc(doc.Keys, func(now directory.SigningKey) bool { return now.KeyID() == k.KeyID() })
	}) {
		past = append([]string{o.keysText}, past[:min(len(past), maxPast-1)]...)
	}
	o.keysText, o.past = text, past
	st := o.saved(o.index.Clock.Now())
	return m.store.db.Update(func(tx *bbolt.Tx) error {
		if err := tx.Bucket(bucketPast).Put([]byte(o.domain.Name()), marshal(past)); err != nil {
			return err
		}
		return putOrigin(tx, o.domain, st)
	})
}

// parseKeys takes a document apart that was adopted once; nil for none.
func parseKeys(text string) *directory.KeyDocument {
	parts, err := splitJWS(text)
	if err != nil {
		return nil
	}
	doc, err := directory.ParseKeyDocument(parts.payload)
	if err != nil {
		return nil
	}
	return doc
}

// past returns what replaceKeys kept.
func (s *store) past(td spiffeid.TrustDomain) (texts []string, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketPast).Get([]byte(td.Name()))
		if b == nil {
			return nil
		}
		return unmarshal(b, &texts)
	})
	return texts, err
}

// issued returns the key documents of an origin that there are, the newest first.
func (o *origin) issued() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{o.keysText}, o.past...)
}

// oldPage takes a page of the origin's mesh stream apart whose signature can't
// be checked by the newest key document; nil for what is no such page.
func (o *origin) oldPage(text string) *verifiedPage {
	parts, err := splitJWS(text)
	if err != nil {
		return nil
	}
	page, err := directory.ParsePage(parts.payload)
	if err != nil || page.Issuer != o.domain || page.Audience != directory.Mesh {
		return nil
	}
	return &verifiedPage{SignedPage: page, text: text}
}

package publish

import (
	"context"
	"crypto/ed25519"
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

const (
	// aheadAfter is the time between a change and its signature ahead of requests. Peers that
	// follow the stream request its record before that.
	aheadAfter = time.Second
	// aheadRetry is the time until the next attempt where this node can't sign yet.
	aheadRetry = 5 * time.Second
	// aheadBatch is the number of digests between two pauses.
	aheadBatch = 64
	// aheadPause is the length of a pause in multiples of the time that a batch took: signing
	// ahead uses at most a quarter of one processor.
	aheadPause = 3
)

// SignAhead signs the records of the streams to some audiences before they are requested,
// and keeps the signatures in memory as long as the streams have those records. A first sync
// needs one for each record. It returns when ctx ends.
func (b *Publisher) SignAhead(ctx context.Context, audiences func() []directory.Audience) {
	signed := map[directory.Audience]signedUpTo{}

	for {
		// Taken before the streams are read, so that no change is missed.
		changed := b.Source.Changed()
		all := audiences()
		next := make(map[directory.Audience]signedUpTo, len(all))

		failed := b.findKey()
		for _, aud := range all {
			reached, err := b.signStream(ctx, aud, signed[aud], all)
			next[aud], failed = reached, errors.Join(failed, err)
		}

		signed = next

		if len(all) == 0 {
			b.sweep(nil) // there is no peer any more
		}

		wait := aheadAfter
		if failed != nil {
			wait = aheadRetry
		} else {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}

		if !pause(ctx, wait) {
			return
		}
	}
}

// findKey finds out by which key this node signs, if the domain's key document is another than
// before. Signatures by another key are removed.
func (b *Publisher) findKey() error {
	doc := b.Source.KeyDocument()
	b.mu.Lock()
	found := doc != nil && b.ready == protocol.Issue(doc)
	b.mu.Unlock()

	if found {
		return nil
	}

	_, err := b.Head()

	return err
}

// signedUpTo is how far the records of a stream are signed, and the key that signed them.
type signedUpTo struct {
	position directory.Position
	kid      string
}

// signStream signs the records of a stream behind a position, until its tip or an error, and returns
// how far it came. all are the audiences of all streams.
func (b *Publisher) signStream(ctx context.Context, aud directory.Audience, from signedUpTo,
	all []directory.Audience) (signedUpTo, error) {
	for {
		began := time.Now()

		if b.isFull() {
			b.sweep(all)
		}

		if epoch, kid := b.Source.Position().Epoch, b.kid(); epoch != from.position.Epoch || kid != from.kid {
			from = signedUpTo{directory.Position{Epoch: epoch}, kid}
		}

		digests, to, at := b.Source.Digests(aud, from.position.Revision, aheadBatch)
		for _, digest := range digests {
			if !digest.Live() || b.isSigned(digest.H) {
				continue
			}

			payload, _, ok := b.Source.Record(aud, digest.H, digest.M)
			if !ok {
				continue // it has changed since, and its new digest lies behind this one
			}

			if _, _, err := b.signedRecord(digest.H, payload); err != nil {
				return from, err
			}
		}

		from.position.Revision = max(from.position.Revision, to)

		if to >= at || !pause(ctx, aheadPause*time.Since(began)) {
			return from, nil
		}
	}
}

// sweep removes the signatures of records that no stream has any more, and makes room for those of
// all that the streams have.
func (b *Publisher) sweep(audiences []directory.Audience) {
	present := map[directory.Hash][ed25519.SignatureSize]byte{}
	live := 0

	for _, aud := range audiences {
		for since, more := uint64(0), true; more; {
			digests, to, at := b.Source.Digests(aud, since, protocol.MaxDigests)
			since, more = to, to < at

			b.mu.Lock()

			for _, digest := range digests {
				if digest.Live() {
					live++
				}

				if signature, ok := b.known.byHash[digest.H]; ok {
					present[digest.H] = signature
				}
			}

			b.mu.Unlock()
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	// Signatures that were added to scanned batches meanwhile are dropped, and made again on request.
	b.known.replace(present, live)
}

func (b *Publisher) isSigned(hash directory.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.known.byHash[hash]

	return ok
}

func (b *Publisher) isFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.known.isFull()
}

func (b *Publisher) kid() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.known.kid
}

// pause returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

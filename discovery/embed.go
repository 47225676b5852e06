package discovery

import (
	"context"
	"hash/maphash"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/content"
)

// How long the background waits for a source that fails.
const (
	leastPause = time.Second
	mostPause  = time.Minute
)

// A waiter is a text that waits for its vector.
type waiter struct {
	slot uint32
	hash uint64
	text string
}

// embedAll has the texts of registrations embedded as they come, until ctx ends.
// The space itself is the queue: a bit for each slot. Where a batch fails, the
// next ones are smaller, so that one text that a source doesn't take fails alone.
func (f *Finder) embedAll(ctx context.Context) {
	size, pause := embedBatch, leastPause
	for ctx.Err() == nil {
		batch, more := f.waiting(size)
		if more && len(batch) == 0 {
			// The texts of these slots have changed; others may still wait.
			continue
		}

		if len(batch) == 0 {
			select {
			case <-f.wake:
			case <-ctx.Done():
			}

			continue
		}

		if f.embedBatch(ctx, batch) == nil {
			size, pause = min(2*size, embedBatch), leastPause
			continue
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}

		size, pause = max(size/2, 1), min(2*pause, mostPause)
	}
}

// waiting reads the next texts that wait. more says that there were slots to look
// at.
func (f *Finder) waiting(most int) (ws []waiter, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	terms := f.index

	// The source may have another model by now, and vectors of two models are never compared.
	if model := f.cfg.Embedder.Model(); model != terms.space.model {
		terms.space.reset(model)
	}

	slots := terms.space.waiting(most)
	for _, n := range slots {
		s, text := terms.slots.At(n), ""
		if e, ok := f.cfg.View.Peek(terms.origins[s.origin], s.rid); ok && !e.Packed.IsZero() {
			text = textOf(e.Projection())
		}

		if hash := f.hashText(text); hash == terms.space.rows.At(n).text {
			ws = append(ws, waiter{n, hash, text})
		} else {
			terms.space.waits.Unset(n) // it has changed: the feed brings the new text
		}
	}

	return ws, len(slots) > 0
}

func (f *Finder) embedBatch(ctx context.Context, batch []waiter) error {
	texts := make([]string, len(batch))
	for i := range batch {
		texts[i] = batch[i].text
	}

	bound, cancel := context.WithTimeout(ctx, batchPatience)
	defer cancel()

	// No lock is held while the source works, because that may take long.
	model, vs, err := embed(bound, f.cfg.Embedder, texts)
	if err != nil {
		return err
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	space := f.index.space
	switch {
	case model != space.model:
		return nil // they wait still, for the other model
	case space.length == 0:
		space.length = len(vs[0].q)
	case space.length != len(vs[0].q):
		return errAway
	}

	for i, w := range batch {
		// A text that has changed meanwhile waits again or is gone.
		if w.slot < space.rows.Len() && space.rows.At(w.slot).text == w.hash {
			space.rows.At(w.slot).vector = vs[i]
			space.waits.Unset(w.slot)
		}
	}

	return nil
}

// textOf returns the start of a registration's own texts, for a vector.
func textOf(p *directory.Projection) string {
	var out strings.Builder
	for _, section := range content.AppendSections(nil, p) {
		if out.Len()+len(section.Text) >= maxEmbedded {
			out.WriteString(strings.ToValidUTF8(section.Text[:max(0, maxEmbedded-1-out.Len())], ""))
			break
		}

		out.WriteString(section.Text)
		out.WriteByte('\n')
	}

	return out.String()
}

func (f *Finder) hashText(text string) uint64 { return maphash.String(f.seed, text) | 1 }

// textHash is the hash of the text to embed, or 0. Texts that are written for rankers are not
// embedded.
func (f *Finder) textHash(projection *directory.Projection, flags content.Flags) uint64 {
	if f.cfg.Embedder == nil || flags&content.SpamFlags != 0 {
		return 0
	}

	return f.hashText(textOf(projection))
}

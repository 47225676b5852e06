package discovery

import "context"

// classify gives the registrations whose classes are of a generation that is over
// those of this one, a few at a time. It returns ctx's error where that ends first.
func (f *Finder) classify(ctx context.Context) error {
	// It is read before the classes, so that a change meanwhile classifies all of them again.
	generation := f.cfg.Generation()
	if generation == f.classified {
		return nil
	}

	for from, more := uint32(0), true; more; from += classBatch {
		if err := ctx.Err(); err != nil {
			return err
		}

		more = f.classifyFrom(from)
	}

	f.classified = generation

	return nil
}

// classBatch bounds how many registrations are classified while queries wait.
const classBatch = 256

// classifyFrom classifies the slots from one on, and reports whether there are more.
func (f *Finder) classifyFrom(from uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	terms := f.index

	to := min(from+classBatch, terms.slots.Len())
	for n := from; n < to; n++ {
		if terms.alive.Has(n) {
			terms.reclassify(f, n)
		}
	}

	return to < terms.slots.Len()
}

// reclassify gives a registration the class that it is of by now. One that the
// view has no more is about to go.
func (x *termIndex) reclassify(f *Finder, n uint32) {
	s := x.slots.At(n)

	entry, ok := f.cfg.View.Peek(x.origins[s.origin], s.rid)
	if !ok {
		return
	}

	if x.reclass(n, x.classOf(entry)) {
		x.changed(n)
	}
}

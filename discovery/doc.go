// Package discovery finds registrations by what they can do, and says why
// (discovery.md). It is the engine of POST /discovery/query, POST /agents/search
// and POST /agents/resolve; it does no I/O but by its [Embedder].
//
//	finder, err := discovery.New(discovery.Config{View: view})
//	go finder.Run(ctx)                               // follows the view
//	request, err := discovery.ParseRequest(body)     // strict: XU-049 to XU-054
//	result, err := finder.Find(ctx, discovery.Query{
//		Request: request,
//		Reader:  discovery.Reader{Key: caller, Sees: sight}  ,
//	})
//
// What is in the view when Find is called is searched: an answer reads the changes
// that it has not seen before it looks.
//
// Who asks sees no trace of what is hidden from them. Filters, policy's first, make
// one set of registrations ([Result].Excluded counts what each left out); document
// frequencies are counted among what the reader sees; the lengths that fields are
// compared with are constants.
//
// Ranking has two stages. The index keeps, for each term, which registrations have
// it and how much it weighs there by BM25F, in one byte: lengths and weights are
// constants, so this is known when a registration is read. The best by these sums
// are read again and rated exactly: order of words, name, tags, examples one by one
// (the best counts, not the average), protocol, age, policy. [Components] are what
// the score is made of, and [Weights.Score] makes it again.
//
// The answer is picked from what was rated. An owner of many registrations has a few
// candidates before those of other owners that match about as well, and then the rest,
// so a page is short only if nothing else matches. Where an owner crowds the best
// candidates of the index, the index is asked once more without it, so that it hides
// nobody ([WarnDiversified], diversity.go).
//
// With [Config].Embedder there are vectors too. Nearness to the query is a part of
// the component context, and of no other; [Result].Semantic tells how large a part.
//
// Registrations that are written for rankers are caught when they are read
// ([Flags]): they rank below what is honest, and [Finder.Flagged] lists them.
//
// # Rooms
//
//	analysis   texts to terms
//	content    a registration as ranking reads it: sections, counts, labels, spam flags
//	postings   terms to registrations, and the best by their sums
//
// # Files
//
//	config, finder, about              the Finder
//	follow, classify, redacted         the Finder follows the view
//	index, sweep, rank, visible        the index, and what a reader sees of it
//	profile, query                     a request and its answer
//	filters, search, score, evidence   filters, candidates, their scores, and why
//	selection, diversity, explain      the answer, its order, and what became of others
//	semantic, embed, vectors, meaning, fuse
//	                                   vectors
package discovery

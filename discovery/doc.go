// Package discovery finds registrations by their capabilities and explains each result
// (discovery.md). It is the engine of POST /discovery/query, POST /agents/search and POST
// /agents/resolve. It does no I/O except through its [Embedder].
//
//	finder, err := discovery.New(discovery.Config{View: view})
//	go finder.Run(ctx)                               // follows the view
//	request, err := discovery.ParseRequest(body)     // strict: XU-049 to XU-054
//	result, err := finder.Find(ctx, discovery.Query{
//		Request: request,
//		Reader:  discovery.Reader{Key: caller, Sees: sight}  ,
//	})
//
// Find searches the view as of its call: it first indexes the changes that it has not read.
//
// A caller sees no trace of registrations that are hidden from it. Filters, policy's first,
// make one set of registrations ([Result].Excluded counts the registrations that each left
// out). Document frequencies are counted within the reader's visible set. The lengths that
// fields are compared with are constants.
//
// Ranking has two stages. The index keeps, for each term, its registrations and its BM25F
// weight in each, in one byte. Lengths and weights are constants, so the weight is known when a
// registration is read. The best by these sums are read again and rated exactly: order of
// words, name, tags, examples one by one (the best counts, not the average), protocol, age,
// policy. [Components] are the parts of the score, and [Weights.Score] computes it from them.
//
// The answer is picked from the rated candidates. An owner of many registrations has a few
// candidates before those of other owners that match about as well, and then the rest, so a
// page is short only if nothing else matches. If an owner crowds the best candidates of the
// index, the index is searched once more without it, so that it hides no other owner
// ([WarnDiversified], diversity.go).
//
// With [Config].Embedder there are vectors too. Nearness to the query is a part of the
// component context, and of no other; [Result].Semantic gives its weight.
//
// Registrations that are written for rankers are detected when they are read ([Flags]): they
// rank below others, and [Finder.Flagged] lists them.
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
//	index, sweep, rank, visible        the index, and a reader's visible set
//	profile, query                     a request and its answer
//	filters, search, score, evidence   filters, candidates, their scores, and why
//	selection, diversity, explain      the answer, its order, and why others are not in it
//	semantic, embed, vectors, meaning, fuse
//	                                   vectors
package discovery

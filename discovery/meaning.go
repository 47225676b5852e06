package discovery

import "context"

// meaning asks for the vector of a query. Its errors are ctx's, and errAway.
func (f *Finder) meaning(ctx context.Context, query string) (m queryVector, err error) {
	if !f.breaker.begin() {
		return m, errAway
	}

	ok := false
	defer func() { f.breaker.end(ok) }()
	bound, cancel := context.WithTimeout(ctx, queryPatience)
	defer cancel()
	model, vs, err := embed(bound, f.cfg.Embedder, []string{query})

	if ctx.Err() != nil {
		ok = true // the caller went, not the source
		return m, ctx.Err()
	}

	if err != nil {
		return m, errAway
	}

	ok = true

	return queryVector{model, vs[0]}, nil
}

// embedOutside is embed, as the query's Outside has it.
func (s *search) embedOutside(ctx context.Context) error {
	if s.finder.cfg.Embedder == nil || s.query.Outside == nil {
		return s.embed(ctx)
	}

	var err error
	if outside := s.query.Outside(func() { err = s.embed(ctx) }); outside != nil {
		return outside
	}

	return err
}

// embed gives a search the vector of its query, where there is a source.
func (s *search) embed(ctx context.Context) error {
	embedder := s.finder.cfg.Embedder
	if embedder == nil {
		return nil
	}

	s.semantic = &Semantic{Source: SourceNone, Model: embedder.Model()}

	meaning, err := s.finder.meaning(ctx, s.query.Request.Query)
	switch {
	case err == nil:
		s.meant = meaning
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		s.warn(WarnAway)
	}

	return nil
}

package discovery

// An About describes a finder's configuration, for /.well-known/agent-discovery.
type About struct {
	Weights Weights
	// PerOwner is how many candidates of one owner stand before those of others whose
	// score is at least DisplacingShare of the score that they displace.
	PerOwner        int
	DisplacingShare float64
	Taxonomies      []string // their ids
	// Model is the embedder's, to which the texts of queries and registrations go;
	// empty without one.
	Model string
}

// About returns the configuration by which f ranks.
func (f *Finder) About() About {
	about := About{Weights: f.cfg.Weights, PerOwner: f.cfg.PerOwner, DisplacingShare: displacingShare,
		Taxonomies: []string{}}
	for _, t := range f.cfg.Taxonomies {
		about.Taxonomies = append(about.Taxonomies, t.ID)
	}

	if f.cfg.Embedder != nil {
		about.Model = f.cfg.Embedder.Model()
	}

	return about
}

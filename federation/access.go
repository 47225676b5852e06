package federation

// access says which domains may ask this node, and for which streams.
type access struct {
	cfg     *Config
	origins *originSet
}

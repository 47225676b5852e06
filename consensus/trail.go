package consensus

// shorten has Raft keep no more of the log behind the next snapshot than comes between
// two of them.
func (s *Store) shorten() {
	r := s.running.Load()
	if r == nil {
		return // it starts, and writes no snapshot yet
	}
	c := r.ReloadableConfig()
	c.TrailingLogs = s.disk.Trail.Within(s.growth.limit.Load())
	if err := r.ReloadConfig(c); err != nil {
		s.log.Warn("the log may be longer than it should", "error", err)
	}
}

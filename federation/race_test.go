//go:build race

package federation

// The race detector makes everything ten times slower; fewer seeds show as many
// races.
func init() { *seeds = 20 }

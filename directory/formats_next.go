//go:build compatnext

package directory

// newestFormat of a build with the tag compatnext, which plays the next release
// in the tests of mixed meshes and clusters.
const newestFormat = 2

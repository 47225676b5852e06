//go:build !compatnext

package directory

// newestFormat is the highest format of every structure that this build reads
// and can write.
const newestFormat = 1

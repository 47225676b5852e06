// Package limit bounds how much of something a node does at a time. It knows nothing of
// what that is: who uses it names classes and says what is refused.
package limit

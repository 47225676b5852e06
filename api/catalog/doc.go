// Package catalog serves the documents by which others find and understand a directory:
// the well-known URIs, the description of its API with schemas and problems, and the Web
// of Agents document of the agents behind its gateway.
package catalog

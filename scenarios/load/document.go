package main

import (
	"fmt"
	"strings"
)

// documentSize is the size of a registration that the bars assume.
const documentSize = 1400

// How common the values are that documents are looked up by: one in tagCount has
// a tag, one in four a protocol.
const tagCount = 20

var protocols = [...]string{"a2a", "mcp", "grpc", "https"}

// name is the agent name of the i-th registration of a series.
func name(series string, i int) string { return fmt.Sprintf("%s-%08d", series, i) }

// document is the document of the i-th registration: two capabilities, one of
// them with a schema, and a description as long as the size demands.
func document(i int) []byte {
	const (
		before = `{"base":"https://agent-%08d.load.example/api","protocols":["%s","https"],"capabilities":[` +
			`{"name":"summarize-%03d","type":"tool","description":"Summarizes a given document.",` +
			`"tags":["tag-%02d","text"],"input_schema":{"type":"object","properties":{"text":{"type":"string"},` +
			`"sentences":{"type":"integer","minimum":1,"maximum":20}},"required":["text"]}},` +
			`{"name":"translate","type":"tool","tags":["language"]}],"description":"`
		after = `"}`
	)
	// A tag and a protocol are independent of each other.
	doc := fmt.Sprintf(before, i, protocols[i/tagCount%len(protocols)], i%500, i%tagCount)
	doc += strings.Repeat("A sample agent that is registered to see how much a directory carries. ",
		20)[:max(0, documentSize-len(doc)-len(after))]

	return []byte(doc + after)
}

// twoFilters finds one in eighty of the documents; its first page is full from
// eight hundred registrations on.
const twoFilters = "/ad/l?tag=tag-07&protocol=mcp&count=10"

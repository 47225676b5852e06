// Package analysis turns texts into terms: words are split, folded and stemmed, and
// English function words are left out. A [Question] is the terms of a query.
//
//	analyser := analysis.New(seed)
//	for _, token := range analyser.Read("Books flights to Tokyo") { … } // book, flight, tokyo
//
// [NewIndexing] makes an analyser for registrations, which needs the hashes of terms
// alone and remembers those of words and of whole passages.
package analysis

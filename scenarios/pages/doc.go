// Package pages runs the shell blocks of README.md and of the pages in docs with the real
// binary, and compares the tutorial with the script that proves its figures.
//
// The blocks of a page share one shell, in order. The info string of a block may say more:
//
//	norun=REASON  the block isn't run; REASON goes to the end of the line
//	terminals     each line runs in a terminal of its own, until the page ends
//	eventually    the block is repeated until it succeeds
//	until=REGEXP  … and until its output matches
//	exits=CODE    the block ends with this exit code
//	sixteen       the commands are among those from nothing to a peered pair
//	needs=PROGRAM the block isn't run on a machine without the program; of python3, node,
//	              curl and openssl in the block itself the test knows
//	file=NAME     the block, in any language, is the text of a file of the reader
//
// A page that mentions mesh/env.sh finds the development mesh of the run at mesh.
package pages

package program

var Parse = parse

package lab

// Choose is the choice among the attempts of [Merge].
var Choose = choose

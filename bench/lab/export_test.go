package lab

// Choose is the choice among the attempts of [Merge].
var Choose = choose

// FileSystem has the operations that change a results folder.
type FileSystem = fileSystem

// File is a file in creation.
type File = file

// SetFiles sets the file system of the results folder.
func (o *Options) SetFiles(f FileSystem) { o.files = f }

// SetFiles sets the file system of the results folder.
func (o *Outcome) SetFiles(f FileSystem) { o.files = f }

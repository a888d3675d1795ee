from benchmarks.graphs.command import main

main()

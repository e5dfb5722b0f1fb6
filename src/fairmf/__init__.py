"""fairmf: matrix factorisation that is fair to items."""
